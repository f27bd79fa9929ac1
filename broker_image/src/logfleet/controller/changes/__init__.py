"""Changes that the controller decides on, as pure functions of an image."""
