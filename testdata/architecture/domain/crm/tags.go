package crm

type lead struct {
	ID string `json:"id"`
}
