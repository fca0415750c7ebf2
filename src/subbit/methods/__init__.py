"""Federated methods, one file each; `registry` names them, `base` says what a method is."""
