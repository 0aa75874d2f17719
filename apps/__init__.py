"""The explorer: pages over a folder of runs, and the server behind them."""
