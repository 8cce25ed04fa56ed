"""Making: files of made-up medical data, in the forms that data sets have."""
