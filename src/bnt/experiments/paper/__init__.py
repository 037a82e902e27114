"""Every table and figure of the paper as a study: one module each."""
