"""What runs inside a container role: programs over hostile or private files, which load no launcher of containers."""
