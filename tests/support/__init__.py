"""What tests of several directories share: waiting, store URLs, lanes without a store."""
