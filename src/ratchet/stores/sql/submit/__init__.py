"""
Submitting: specs, edges and a batch become rows, all or none.

Enter by `submissions.insert_specs`, inside a transaction. It takes the keys (`keys`), meets the parents that have
ended already (`dependants`), and writes the rows (`rows.specs`). A plain job without any of these does not come here:
`SqlJobs.insert` gives it to the row writer of `rows.specs` at once.
"""
