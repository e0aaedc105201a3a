"""
Batches: many jobs of one target that are counted together, from their description to their end.

`builders.BatchBuilder` describes and stores one with the means of ``api/submit``; `open_batches` is for
those that are stored in chunks. `handles.BatchHandle` asks the store about a batch.
"""
