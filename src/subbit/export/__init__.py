"""What leaves a run: the mask of a task as one small file, and a network without its empty parts for a device."""
