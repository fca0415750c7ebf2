"""Basic modules that all other packages may import. They import no other package of subbit."""
