"""Commands for the machine that they run on: its disks, its configuration, its processes."""
