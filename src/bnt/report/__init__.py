"""Pages and figures from finished runs and studies."""
