"""Exchanges: the uplink, downlink and aggregation of a method."""
