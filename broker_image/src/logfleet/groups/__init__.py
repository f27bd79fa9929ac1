"""The rules of the group coordinator, for groups of all kinds.

It decides records and responses, and applies records. Each kind of groups is a room.
"""
