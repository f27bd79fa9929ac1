"""What the pages show, as functions of the sample: dictionaries, which are their JSON as well."""
