package crm

func start() { go start() }
