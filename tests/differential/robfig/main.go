// Command robfig answers on standard output, line by line, when CronJob would run.
//
// In: expression, unix seconds to start after and how many times, separated by "|".
// Out: that many unix seconds in UTC, separated by blanks (fewer when the library finds no more
// within its five years), or "error: " and the library's message.
//
// CronJob parses with cron.ParseStandard of this very version.
package main

import (
	"bufio"
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
		fmt.Fprintln(out, answer(strings.Split(in.Text(), "|")))
	}
}

func answer(question []string) string {
	schedule, err := cron.ParseStandard(question[0])
	if err != nil {
		return "error: " + err.Error()
	}
	seconds, _ := strconv.ParseInt(question[1], 10, 64)
	count, _ := strconv.Atoi(question[2])
	at, times := time.Unix(seconds, 0).UTC(), []string{}
	for range count {
		if at = schedule.Next(at); at.IsZero() {
			break
		}
		times = append(times, strconv.FormatInt(at.Unix(), 10))
	}
	return strings.Join(times, " ")
}
