"""Reports, and the series and samples made of them."""
