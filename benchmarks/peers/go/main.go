// Fires jobs that are due at once through one of two queues and prints when each was handled.
//
// Arguments: asynq|delayq, port, number of jobs. Output: the due and then the times, in microseconds,
// one a line. "asynq" is the library; "delayq" is the algorithm of github.com/spy16/delayq written
// again, because no module registry serves it: points are claimed by a new score under a Lua script,
// handled by goroutines and removed one by one.
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

type sink struct {
	lock  sync.Mutex
	times []int64
	done  chan struct{}
	want  int
}

func (s *sink) note() {
	now := time.Now().UnixMicro()
	s.lock.Lock()
	s.times = append(s.times, now)
	if len(s.times) == s.want {
		close(s.done)
	}
	s.lock.Unlock()
}

func main() {
	port, count := os.Args[2], number(os.Args[3])
	noted := &sink{done: make(chan struct{}), want: count}
	due := time.Now().Truncate(time.Second).Add(time.Duration(4+count/10000) * time.Second)
	if os.Args[1] == "asynq" {
		runAsynq(port, count, due, noted)
	} else {
		runDelayq(port, count, due, noted)
	}
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	fmt.Fprintln(out, due.UnixMicro())
	for _, at := range noted.times {
		fmt.Fprintln(out, at)
	}
}

func number(text string) int {
	value, err := strconv.Atoi(text)
	must(err)
	return value
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// Both check intervals far below the defaults (5 s and 1 s), which is asynq at its fastest.
func runAsynq(port string, count int, due time.Time, noted *sink) {
	address := asynq.RedisClientOpt{Addr: "127.0.0.1:" + port}
	client := asynq.NewClient(address)
	for n := range count {
		_, err := client.Enqueue(asynq.NewTask("n", []byte(strconv.Itoa(n))), asynq.ProcessAt(due))
		must(err)
	}
	server := asynq.NewServer(address, asynq.Config{
		Concurrency:              50,
		DelayedTaskCheckInterval: 20 * time.Millisecond,
		TaskCheckInterval:        20 * time.Millisecond,
		LogLevel:                 asynq.ErrorLevel,
	})
	mux := asynq.NewServeMux()
	mux.HandleFunc("n", func(context.Context, *asynq.Task) error { noted.note(); return nil })
	must(server.Start(mux))
	<-noted.done
	server.Shutdown()
}

const (
	delayqShards   = 3
	delayqWorkers  = 20
	delayqPrefetch = 1000
	delayqPoll     = 5 * time.Millisecond
	delayqReclaim  = 185 // seconds, its default of 3 minutes and its margin
)

var claim = redis.NewScript(`
local found = redis.call('ZRANGE', KEYS[1], '-inf', ARGV[1], 'BYSCORE', 'LIMIT', 0, ARGV[2])
for _, member in ipairs(found) do
  redis.call('ZADD', KEYS[1], 'XX', ARGV[3], member)
end
return found`)

func runDelayq(port string, count int, due time.Time, noted *sink) {
	ctx := context.Background()
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:" + port, PoolSize: delayqWorkers})
	for first := 0; first < count; first += delayqPrefetch {
		members := make([]redis.Z, 0, delayqPrefetch)
		for n := first; n < min(count, first+delayqPrefetch); n++ {
			member := fmt.Sprintf(`{"at":%d,"value":"%d"}`, due.Unix(), n)
			members = append(members, redis.Z{Score: float64(due.Unix()), Member: member})
		}
		must(client.ZAdd(ctx, delayqKey(first/delayqPrefetch), members...).Err())
	}
	for worker := range delayqWorkers {
		go delayqWork(ctx, client, worker, noted)
	}
	<-noted.done
}

func delayqKey(n int) string { return fmt.Sprintf("delay_set:{b-%d}", n%delayqShards) }

func delayqWork(ctx context.Context, client *redis.Client, worker int, noted *sink) {
	for turn := worker; ; turn++ {
		key, now := delayqKey(turn), time.Now().Unix()
		found, err := claim.Run(ctx, client, []string{key}, now, delayqPrefetch, now+delayqReclaim).
			StringSlice()
		must(err)
		for _, member := range found {
			noted.note()
			must(client.ZRem(ctx, key, member).Err())
		}
		if len(found) == 0 {
			time.Sleep(delayqPoll)
		}
	}
}
