"""Sends and counts messages between ranks, replays them on alpha-beta links, and gives their cost as formulas."""
