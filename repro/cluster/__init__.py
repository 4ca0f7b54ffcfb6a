"""Where ranks live: threads, processes, machines, network namespaces and SLURM jobs."""
