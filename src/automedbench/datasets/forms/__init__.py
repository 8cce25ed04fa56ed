"""Forms: how pictures, volumes, tables and questions lie in data sets, and as what they are staged."""
