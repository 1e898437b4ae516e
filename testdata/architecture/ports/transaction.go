package ports

type Store interface{ Save(tx Tx) }
