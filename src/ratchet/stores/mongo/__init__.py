"""
The store on MongoDB: `store.MongoStore`, made of one class for each noun.

Verbs that a few documents decide follow the rules of `ratchet.stores.memory`, in a transaction (`transaction`).
Claims (`claiming`), submissions, plain successes and searches are written for MongoDB. What a document is says
`documents`.
"""
