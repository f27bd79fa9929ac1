"""What the command line runs on a machine beside a broker: doctor, adopt, local, snapshots."""
