// Command robfig answers on standard output, line by line, when CronJob would run.
//
// In: a JSON list of the expression, the unix seconds to start after and how many times.
// Out: that many unix seconds in UTC, separated by blanks (fewer when the library finds no more
// within its five years, or searches for ever, as for a day that a zone left out), or "error: " and
// the library's message. A zone may stand before the expression, as CRON_TZ=; ZONEINFO names the
// folder of its rules.
//
// CronJob parses with cron.ParseStandard of this very version.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
)

func main() {
	in := bufio.NewScanner(os.Stdin)
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	for in.Scan() {
		fmt.Fprintln(out, answer(in.Bytes()))
	}
}

// A search takes microseconds; one that takes this long never comes back, and is left running.
const endless = 20 * time.Second

func next(schedule cron.Schedule, at time.Time) time.Time {
	found := make(chan time.Time, 1)
	go func() { found <- schedule.Next(at) }()
	select {
	case at = <-found:
		return at
	case <-time.After(endless):
		return time.Time{}
	}
}

func answer(line []byte) string {
	var text string
	var seconds, count int64
	if err := json.Unmarshal(line, &[]any{&text, &seconds, &count}); err != nil {
		panic(err)
	}
	schedule, err := cron.ParseStandard(text)
	if err != nil {
		return strings.ReplaceAll("error: "+err.Error(), "\n", " ")
	}
	at, times := time.Unix(seconds, 0).UTC(), []string{}
	for range count {
		if at = next(schedule, at); at.IsZero() {
			break
		}
		times = append(times, strconv.FormatInt(at.Unix(), 10))
	}
	return strings.Join(times, " ")
}
