"""What travels between server and clients, and how answers become one: up, down and aggregation of a method."""
