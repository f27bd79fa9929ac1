"""What the metadata store holds, a module per noun: values, their part of an image, their rules.

`logfleet.metadata.registry` lists the kinds; a new one is a module here and its line there.
"""
