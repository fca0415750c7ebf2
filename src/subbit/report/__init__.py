"""Reports: tables and plots of runs."""
