"""The pages people read: server-rendered HTML over the same data as the API."""
