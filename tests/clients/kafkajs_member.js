// A member of a group as a process of its own: see support/group_member.py, which does the same.
const { Kafka, logLevel } = require('kafkajs')

const [bootstrap, groupId, topic, sessionMs] = process.argv.slice(2)
const sessionTimeout = Number(sessionMs)
const slowSessions = 3

const kafka = new Kafka({
  clientId: 'kafkajs-member',
  brokers: bootstrap.split(','),
  logLevel: logLevel.NOTHING,
  retry: { initialRetryTime: 100, maxRetryTime: 1000, retries: 100 },
})
const consumer = kafka.consumer({
  groupId,
  sessionTimeout,
  rebalanceTimeout: 2 * sessionTimeout,
  heartbeatInterval: 300,
  maxWaitTimeInMs: 200,
})

let isSlow = false
process.on('SIGUSR2', () => {
  isSlow = true
})
process.on('SIGTERM', async () => {
  await consumer.disconnect()
  process.exit(0)
})
process.stdout.write('ready\n')

const eachBatch = async ({ batch, resolveOffset, heartbeat, commitOffsetsIfNecessary }) => {
  const offsets = batch.messages.map(message => Number(message.offset))
  let first = offsets[0]
  offsets.forEach((offset, at) => {
    if (offsets[at + 1] !== offset + 1) {
      process.stdout.write(`${batch.partition} ${first} ${offset}\n`)
      first = offsets[at + 1]
    }
  })
  if (isSlow) {
    isSlow = false
    await new Promise(resolve => setTimeout(resolve, slowSessions * sessionTimeout))
  }
  resolveOffset(batch.lastOffset())
  await heartbeat()
  await commitOffsetsIfNecessary()
}

const main = async () => {
  await consumer.connect()
  await consumer.subscribe({ topic, fromBeginning: true })
  await consumer.run({ autoCommitThreshold: 1, eachBatchAutoResolve: false, eachBatch })
}
main()
