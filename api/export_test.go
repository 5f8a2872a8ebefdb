package api

// Codes lists the codes of the table of problems.
func Codes() []string {
	var codes []string
	for _, r := range rules() {
		codes = append(codes, r.code)
	}
	return codes
}
