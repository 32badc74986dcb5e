"""The broker's gRPC services: Admin, Groups, Transactions, and Log for thin clients."""
