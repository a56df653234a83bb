// Reads a Grafana dashboard from stdin and says what in it is not of Grafana's schema; the exit code is 1 then.
package main

import (
	"fmt"
	"io"
	"os"

	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

func main() {
	plugins.RegisterDefaultPlugins()
	raw, err := io.ReadAll(os.Stdin)
	if err == nil {
		var read dashboard.Dashboard
		err = read.UnmarshalJSONStrict(raw)
	}
	// All is well also where the library returns a list of errors that has none.
	if err != nil && err.Error() != "" {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
