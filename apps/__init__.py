"""The explorer: three pages over a folder of runs, and the server behind them."""
