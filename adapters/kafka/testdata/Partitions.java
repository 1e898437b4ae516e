import java.util.HexFormat;
import java.util.Scanner;
import org.apache.kafka.clients.producer.internals.BuiltInPartitioner;

/** Prints in which of so many partitions Kafka's own producer puts each key, of those given in hex. */
public class Partitions {
    public static void main(String[] args) {
        int partitions = Integer.parseInt(args[0]);
        try (Scanner keys = new Scanner(System.in)) {
            while (keys.hasNext()) {
                byte[] key = HexFormat.of().parseHex(keys.next());
                System.out.println(BuiltInPartitioner.partitionForKey(key, partitions));
            }
        }
    }
}
