"""Commands that run on a broker's machine: doctor, adopt, local, snapshots."""
