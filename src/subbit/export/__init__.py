"""Export of a run: the mask of a task as one small file, or a smaller network for a device."""
