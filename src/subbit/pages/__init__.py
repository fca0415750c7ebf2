"""Pages to look at: one self-contained HTML file per run, comparison or arena."""
