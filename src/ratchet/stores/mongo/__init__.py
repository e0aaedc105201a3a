"""Jobs in MongoDB: a replica set, its transactions, and change streams."""
