import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.time.Duration;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * An example: it reads LeadExpiredEvent as a message that comes at least once wants to be read (docs/outbox.md), and
 * appends a line to a file for each, and for each only once. The tests run it.
 *
 * <p>The file is both what it does and what it has read: a line is there as a whole, or not at all. In a service, these
 * are an inbox table and the service's own tables, in one transaction.
 *
 * <p>java -cp 'kafka-libs/*' LeadFeed.java BROKERS TOPIC GROUP FILE
 */
public class LeadFeed {
    private final ObjectMapper json = new ObjectMapper();
    private final Set<String> read = new HashSet<>(); // by ce_id
    private final Map<String, Integer> versions = new HashMap<>(); // the latest, by lead
    private final FileChannel file;

    LeadFeed(Path path) throws IOException {
        if (Files.exists(path)) {
            for (String line : Files.readAllLines(path)) {
                String[] fields = line.split(" ");
                read.add(fields[0]);
                versions.merge(fields[1], Integer.parseInt(fields[2]), Math::max);
            }
        }
        file = FileChannel.open(path, StandardOpenOption.CREATE, StandardOpenOption.APPEND);
    }

    /** A line: ce_id, lead, version, the agent to tell, when it expired, and "late" where a newer one came before. */
    void handle(ConsumerRecord<String, byte[]> record) throws IOException {
        String id = header(record, "ce_id");
        if (read.contains(id)) { // a repetition
            return;
        }
        int version = Integer.parseInt(header(record, "ce_aggregateversion"));
        var event = json.readTree(record.value()); // what it does not know, it ignores
        String lead = event.get("LeadId").asText();
        boolean late = version < versions.getOrDefault(lead, 0); // it was parked and released: what is newer stays
        String line = String.join(" ", id, lead, Integer.toString(version),
                event.get("AgentUserId").asText(), event.get("ExpiredAt").asText(), late ? "late" : "") + "\n";
        file.write(ByteBuffer.wrap(line.getBytes(StandardCharsets.UTF_8)));
        read.add(id);
        versions.merge(lead, version, Math::max);
    }

    private static String header(ConsumerRecord<String, byte[]> record, String name) {
        return new String(record.headers().lastHeader(name).value(), StandardCharsets.UTF_8);
    }

    public static void main(String[] args) throws IOException {
        var feed = new LeadFeed(Path.of(args[3]));
        Map<String, Object> config = Map.of(
                "bootstrap.servers", args[0], "group.id", args[2],
                "auto.offset.reset", "earliest", "enable.auto.commit", false);
        try (var consumer = new KafkaConsumer<>(config, new StringDeserializer(), new ByteArrayDeserializer())) {
            consumer.subscribe(List.of(args[1]));
            while (true) {
                for (var record : consumer.poll(Duration.ofSeconds(1))) {
                    feed.handle(record);
                }
                feed.file.force(true);
                consumer.commitSync(); // only now: what was read and not done comes again, and handle knows it
            }
        }
    }
}
