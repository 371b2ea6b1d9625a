// Drives kafkajs for the tests: a JSON command a line on stdin, a JSON answer a line on stdout.
// Keys, values and header values travel in base64. See kafkajs.py.
const readline = require('readline')
const { Kafka, CompressionTypes, CompressionCodecs, Partitioners, logLevel } = require('kafkajs')
const snappy = require('kafkajs-snappy')
const lz4 = require('lz4-napi')
const { ZstdCodec } = require('zstd-codec')

// kafkajs has gzip itself and takes the other codecs from outside.
CompressionCodecs[CompressionTypes.Snappy] = snappy
CompressionCodecs[CompressionTypes.LZ4] = () => ({
  compress: encoder => lz4.compressFrame(encoder.buffer),
  decompress: buffer => lz4.decompressFrame(buffer),
})
const zstd = new Promise(resolve => ZstdCodec.run(found => resolve(new found.Simple())))
CompressionCodecs[CompressionTypes.ZSTD] = () => ({
  compress: async encoder => Buffer.from((await zstd).compress(encoder.buffer)),
  decompress: async buffer => Buffer.from((await zstd).decompress(buffer)),
})
const codecs = {
  none: CompressionTypes.None,
  gzip: CompressionTypes.GZIP,
  snappy: CompressionTypes.Snappy,
  lz4: CompressionTypes.LZ4,
  zstd: CompressionTypes.ZSTD,
}

const kafka = new Kafka({
  clientId: 'kafkajs-client',
  brokers: [process.argv[2]],
  logLevel: logLevel.NOTHING,
  retry: { retries: 2 },
})
let admin
const members = new Map()

const bytes = text => (text === null ? null : Buffer.from(text, 'base64'))

const message = ({ key, value, headers }) => ({
  key: bytes(key),
  value: bytes(value),
  headers: Object.fromEntries(
    Object.entries(headers).map(([name, values]) => [name, values.map(bytes)])
  ),
})

const actions = {
  async admin({ method, argument }) {
    if (!admin) {
      admin = kafka.admin()
      await admin.connect()
    }
    return admin[method](...(argument === null ? [] : [].concat(argument)))
  },
  // A member of a group; what it has read is told when it is asked for.
  async join({ name, topic, options }) {
    const consumer = kafka.consumer(options)
    const member = { consumer, values: [], partitions: [], generations: 0 }
    members.set(name, member)
    consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
      member.partitions = payload.memberAssignment[topic] || []
      member.generations += 1
    })
    await consumer.connect()
    await consumer.subscribe({ topic, fromBeginning: true })
    await consumer.run({
      autoCommitThreshold: 1,
      eachMessage: async ({ message }) => member.values.push(message.value.toString('base64')),
    })
  },
  async look({ name }) {
    const { values, partitions, generations } = members.get(name)
    return { values, partitions, generations }
  },
  async leave({ name }) {
    await members.get(name).consumer.disconnect()
  },
  async send({ producer: options, record }) {
    const createPartitioner = Partitioners.DefaultPartitioner
    const producer = kafka.producer({ createPartitioner, ...options })
    await producer.connect()
    try {
      return await producer.send({
        ...record,
        compression: codecs[record.compression || 'none'],
        messages: record.messages.map(message),
      })
    } finally {
      await producer.disconnect()
    }
  },
}

// An error of the broker may be wrapped in one that says that retries were given up.
const failure = error => {
  const inner = error.errors ? error.errors[0] : error.cause || error
  return { error: inner.type || inner.name, message: inner.message }
}

const answer = async line => {
  const command = JSON.parse(line)
  try {
    const result = await actions[command.do](command)
    return { result: result === undefined ? null : result }
  } catch (error) {
    return failure(error)
  }
}

const main = async () => {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    process.stdout.write(JSON.stringify(await answer(line)) + '\n')
  }
}
main()
