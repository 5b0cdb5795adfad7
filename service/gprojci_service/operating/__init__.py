"""What operators look at: whether the service is alive and ready, its metrics, what is wrong with its surroundings."""
