"""Measuring hosts: the API through which they take work and stay alive."""
