"""Studies: grids of runs and the statistics over them."""
