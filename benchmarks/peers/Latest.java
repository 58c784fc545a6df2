import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.state.KeyValueStore;

/**
 * The latest value of each key as a Kafka Streams job would keep it: BOOTSTRAP SOURCE OUTPUT GROUP STATE-FOLDER
 * TOPOLOGY COMMIT-MS, where TOPOLOGY is reduce or table.
 */
public class Latest {
    public static void main(String[] args) throws InterruptedException {
        int commitMs = Integer.parseInt(args[6]);
        Properties config = new Properties();
        config.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, args[0]);
        config.put(StreamsConfig.APPLICATION_ID_CONFIG, args[3]);
        config.put(StreamsConfig.STATE_DIR_CONFIG, args[4]);
        config.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        config.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, commitMs);
        config.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, 2);
        config.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 256L * 1024 * 1024);
        config.put(StreamsConfig.REPLICATION_FACTOR_CONFIG, 1);
        config.put("consumer.auto.offset.reset", "earliest");
        // A transaction is as long as the time between two commits, and Streams refuses one that may time out.
        config.put("producer.transaction.timeout.ms", 60_000 + commitMs);

        StreamsBuilder builder = new StreamsBuilder();
        latest(builder, args[1], args[5], config).toStream().to(args[2], Produced.with(Serdes.Bytes(), Serdes.Bytes()));

        KafkaStreams streams = new KafkaStreams(builder.build(config), config);
        Runtime.getRuntime().addShutdownHook(new Thread(streams::close));
        streams.start();
        Thread.currentThread().join();
    }

    private static KTable<Bytes, Bytes> latest(
            StreamsBuilder builder, String source, String topology, Properties config) {
        Consumed<Bytes, Bytes> read = Consumed.with(Serdes.Bytes(), Serdes.Bytes());
        switch (topology) {
            case "reduce":
                return builder.stream(source, read)
                        .groupByKey(Grouped.with(Serdes.Bytes(), Serdes.Bytes()))
                        .reduce((before, latest) -> latest);
            case "table":
                // The source is its own changelog; without a store every record would be sent on.
                config.put(StreamsConfig.TOPOLOGY_OPTIMIZATION_CONFIG, StreamsConfig.OPTIMIZE);
                return builder.table(
                        source,
                        read,
                        Materialized.<Bytes, Bytes, KeyValueStore<Bytes, byte[]>>as("latest").withCachingEnabled());
            default:
                throw new IllegalArgumentException(topology);
        }
    }
}
