"""Log directories: what is in them, their disks, free space and failures."""
