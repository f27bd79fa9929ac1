"""The broker in its cluster: registration, image, controller."""
