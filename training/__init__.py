"""Corpora of synthetic documents and the finetuning that makes model organisms from them."""
