"""Control corpora: grammars of their documents, and the claims about the planted fact."""
