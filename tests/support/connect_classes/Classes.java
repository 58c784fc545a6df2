import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.connect.data.Date;
import org.apache.kafka.connect.data.Decimal;
import org.apache.kafka.connect.data.Field;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.data.SchemaAndValue;
import org.apache.kafka.connect.data.SchemaBuilder;
import org.apache.kafka.connect.data.Struct;
import org.apache.kafka.connect.data.Time;
import org.apache.kafka.connect.data.Timestamp;
import org.apache.kafka.connect.header.ConnectHeaders;
import org.apache.kafka.connect.header.Header;
import org.apache.kafka.connect.sink.SinkRecord;
import org.apache.kafka.connect.storage.Converter;
import org.apache.kafka.connect.transforms.Transformation;
import org.apache.kafka.connect.transforms.predicates.Predicate;

/** Asks real classes of Kafka Connect: a JSON object a line in, one out. See asking.py for their forms. */
public final class Classes {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final JsonNodeFactory NODES = JsonNodeFactory.withExactBigDecimals(true);
    private static final Map<String, Object> MADE = new HashMap<>();

    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            ObjectNode answer = NODES.objectNode();
            try {
                answer.set("answer", answer(JSON.readTree(line)));
            } catch (Throwable error) {
                answer.put("error", error.getClass().getSimpleName());
                answer.put("message", String.valueOf(error.getMessage()));
            }
            out.println(JSON.writeValueAsString(answer));
        }
    }

    private static JsonNode answer(JsonNode asked) throws Exception {
        Object made = made(asked);
        switch (asked.get("call").asText()) {
            case "transform":
                return record(((Transformation<SinkRecord>) made).apply(record(asked.get("record"))));
            case "predicate":
                return NODES.booleanNode(((Predicate<SinkRecord>) made).test(record(asked.get("record"))));
            case "to_connect_data":
                SchemaAndValue found = ((Converter) made).toConnectData("t", bytes(asked.get("data")));
                return pair(found.schema(), found.value());
            case "from_connect_data":
                Schema schema = schema(asked.get("schema"));
                byte[] data = ((Converter) made).fromConnectData("t", schema, value(schema, asked.get("value")));
                return data == null ? NODES.nullNode() : NODES.textNode(Base64.getEncoder().encodeToString(data));
            default:
                throw new IllegalArgumentException("unknown call");
        }
    }

    private static Object made(JsonNode asked) throws Exception {
        String key = asked.get("class").asText() + asked.get("config") + asked.get("is_key");
        if (!MADE.containsKey(key)) {
            Object one = Class.forName(asked.get("class").asText()).getDeclaredConstructor().newInstance();
            Map<String, String> config = new HashMap<>();
            asked.get("config").fields().forEachRemaining(entry -> config.put(entry.getKey(), entry.getValue().asText()));
            if (one instanceof Converter) {
                ((Converter) one).configure(config, asked.path("is_key").asBoolean());
            } else if (one instanceof Transformation) {
                ((Transformation<?>) one).configure(config);
            } else {
                ((Predicate<?>) one).configure(config);
            }
            MADE.put(key, one);
        }
        return MADE.get(key);
    }

    private static SinkRecord record(JsonNode node) {
        Schema keySchema = schema(node.get("key_schema"));
        Schema valueSchema = schema(node.get("value_schema"));
        ConnectHeaders headers = new ConnectHeaders();
        for (JsonNode one : node.get("headers")) {
            headers.add(one.get(0).asText(), bytes(one.get(1)), null);
        }
        return new SinkRecord(
            node.get("topic").asText(), node.get("partition").asInt(), keySchema, value(keySchema, node.get("key")),
            valueSchema, value(valueSchema, node.get("value")), node.get("offset").asLong(),
            node.get("timestamp").isNull() ? null : node.get("timestamp").asLong(), TimestampType.CREATE_TIME, headers);
    }

    private static JsonNode record(SinkRecord record) {
        if (record == null) {
            return NODES.nullNode();
        }
        ObjectNode node = NODES.objectNode();
        node.put("topic", record.topic());
        node.set("key", pair(record.keySchema(), record.key()));
        node.set("value", pair(record.valueSchema(), record.value()));
        ArrayNode headers = node.putArray("headers");
        for (Header one : record.headers()) {
            headers.add(NODES.arrayNode().add(one.key()).add(pair(one.schema(), one.value())));
        }
        return node;
    }

    private static JsonNode pair(Schema schema, Object value) {
        return NODES.arrayNode().add(schema(schema)).add(value(schema, value));
    }

    private static Schema schema(JsonNode node) {
        if (node == null || node.isNull()) {
            return null;
        }
        SchemaBuilder builder = builder(node);
        if (node.path("optional").asBoolean()) {
            builder.optional();
        }
        if (node.hasNonNull("name")) {
            builder.name(node.get("name").asText());
        }
        if (node.hasNonNull("version")) {
            builder.version(node.get("version").asInt());
        }
        if (node.hasNonNull("doc")) {
            builder.doc(node.get("doc").asText());
        }
        if (node.hasNonNull("parameters")) {
            node.get("parameters").fields().forEachRemaining(
                entry -> builder.parameter(entry.getKey(), entry.getValue().asText()));
        }
        if (node.hasNonNull("default")) {
            builder.defaultValue(value(builder, node.get("default")));
        }
        return builder.build();
    }

    private static SchemaBuilder builder(JsonNode node) {
        Schema.Type type = Schema.Type.valueOf(node.get("type").asText());
        switch (type) {
            case ARRAY:
                return SchemaBuilder.array(schema(node.get("values")));
            case MAP:
                return SchemaBuilder.map(schema(node.get("keys")), schema(node.get("values")));
            case STRUCT:
                SchemaBuilder struct = SchemaBuilder.struct();
                for (JsonNode field : node.get("fields")) {
                    struct.field(field.get(0).asText(), schema(field.get(1)));
                }
                return struct;
            default:
                return new SchemaBuilder(type);
        }
    }

    private static JsonNode schema(Schema schema) {
        if (schema == null) {
            return NODES.nullNode();
        }
        ObjectNode node = NODES.objectNode();
        node.put("type", schema.type().name());
        node.put("optional", schema.isOptional());
        node.put("name", schema.name());
        node.put("version", schema.version());
        node.put("doc", schema.doc());
        node.set("parameters", schema.parameters() == null || schema.parameters().isEmpty()
            ? NODES.nullNode() : JSON.valueToTree(schema.parameters()));
        node.set("default", schema.defaultValue() == null ? NODES.nullNode() : value(schema, schema.defaultValue()));
        if (schema.type() == Schema.Type.STRUCT) {
            ArrayNode fields = node.putArray("fields");
            for (Field field : schema.fields()) {
                fields.add(NODES.arrayNode().add(field.name()).add(schema(field.schema())));
            }
        }
        if (schema.type() == Schema.Type.MAP) {
            node.set("keys", schema(schema.keySchema()));
        }
        if (schema.type() == Schema.Type.MAP || schema.type() == Schema.Type.ARRAY) {
            node.set("values", schema(schema.valueSchema()));
        }
        return node;
    }

    /** A value is null, or an object of one member: its kind, and what it holds in JSON. */
    private static Object value(Schema schema, JsonNode node) {
        if (node == null || node.isNull()) {
            return null;
        }
        String kind = node.fieldNames().next();
        JsonNode held = node.get(kind);
        if (schema != null && schema.name() != null) {
            switch (schema.name()) {
                case Decimal.LOGICAL_NAME:
                    return Decimal.toLogical(schema, bytes(held));
                case Date.LOGICAL_NAME:
                    return Date.toLogical(schema, held.asInt());
                case Time.LOGICAL_NAME:
                    return Time.toLogical(schema, held.asInt());
                case Timestamp.LOGICAL_NAME:
                    return Timestamp.toLogical(schema, held.asLong());
                default:
            }
        }
        switch (kind) {
            case "boolean":
                return held.asBoolean();
            case "int":
                return number(schema, held.bigIntegerValue());
            case "float":
                return schema != null && schema.type() == Schema.Type.FLOAT32
                    ? (Object) Float.valueOf(held.asText()) : (Object) Double.valueOf(held.asText());
            case "string":
                return held.asText();
            case "bytes":
                return bytes(held);
            case "decimal":
                return new BigDecimal(held.asText());
            case "date":
                return new java.util.Date(held.asLong());
            case "list":
                List<Object> list = new ArrayList<>();
                held.forEach(one -> list.add(value(schema == null ? null : schema.valueSchema(), one)));
                return list;
            case "dict":
                return dict(schema, held);
            default:
                throw new IllegalArgumentException(kind);
        }
    }

    private static Object dict(Schema schema, JsonNode held) {
        if (schema != null && schema.type() == Schema.Type.STRUCT) {
            Struct struct = new Struct(schema);
            for (JsonNode pair : held) {
                Field field = schema.field(pair.get(0).get("string").asText());
                struct.put(field, value(field.schema(), pair.get(1)));
            }
            return struct;
        }
        Map<Object, Object> map = new LinkedHashMap<>();
        for (JsonNode pair : held) {
            map.put(value(schema == null ? null : schema.keySchema(), pair.get(0)),
                value(schema == null ? null : schema.valueSchema(), pair.get(1)));
        }
        return map;
    }

    private static Object number(Schema schema, BigInteger number) {
        if (schema == null) {
            return number.longValue();
        }
        switch (schema.type()) {
            case INT8:
                return number.byteValue();
            case INT16:
                return number.shortValue();
            case INT32:
                return number.intValue();
            default:
                return number.longValue();
        }
    }

    private static byte[] bytes(JsonNode node) {
        return node == null || node.isNull() ? null : Base64.getDecoder().decode(node.asText());
    }

    private static JsonNode value(Schema schema, Object value) {
        if (value == null) {
            return NODES.nullNode();
        }
        ObjectNode node = NODES.objectNode();
        if (schema != null && schema.name() != null) {
            switch (schema.name()) {
                case Decimal.LOGICAL_NAME:
                    BigDecimal number = (BigDecimal) value;
                    byte[] unscaled = number.signum() == 0 ? new byte[1] : Decimal.fromLogical(schema, number);
                    return node.put("bytes", Base64.getEncoder().encodeToString(unscaled));
                case Date.LOGICAL_NAME:
                    return node.put("int", Date.fromLogical(schema, (java.util.Date) value));
                case Time.LOGICAL_NAME:
                    return node.put("int", Time.fromLogical(schema, (java.util.Date) value));
                case Timestamp.LOGICAL_NAME:
                    return node.put("int", Timestamp.fromLogical(schema, (java.util.Date) value));
                default:
            }
        }
        if (value instanceof Boolean) {
            return node.put("boolean", (Boolean) value);
        }
        if (value instanceof Float || value instanceof Double) {
            return node.put("float", Double.toString(((Number) value).doubleValue()));
        }
        if (value instanceof BigDecimal) {
            return node.put("decimal", value.toString());
        }
        if (value instanceof Number) {
            return node.put("int", ((Number) value).longValue());
        }
        if (value instanceof String) {
            return node.put("string", (String) value);
        }
        if (value instanceof byte[]) {
            return node.put("bytes", Base64.getEncoder().encodeToString((byte[]) value));
        }
        if (value instanceof ByteBuffer) {
            byte[] copy = new byte[((ByteBuffer) value).remaining()];
            ((ByteBuffer) value).duplicate().get(copy);
            return node.put("bytes", Base64.getEncoder().encodeToString(copy));
        }
        if (value instanceof java.util.Date) {
            return node.put("date", ((java.util.Date) value).getTime());
        }
        if (value instanceof List) {
            ArrayNode list = node.putArray("list");
            ((List<?>) value).forEach(one -> list.add(value(schema == null ? null : schema.valueSchema(), one)));
            return node;
        }
        ArrayNode pairs = node.putArray("dict");
        if (value instanceof Struct) {
            for (Field field : ((Struct) value).schema().fields()) {
                Object one = ((Struct) value).getWithoutDefault(field.name());
                pairs.add(NODES.arrayNode().add(NODES.objectNode().put("string", field.name())).add(value(field.schema(), one)));
            }
            return node;
        }
        for (Map.Entry<?, ?> entry : ((Map<?, ?>) value).entrySet()) {
            pairs.add(NODES.arrayNode()
                .add(value(schema == null ? null : schema.keySchema(), entry.getKey()))
                .add(value(schema == null ? null : schema.valueSchema(), entry.getValue())));
        }
        return node;
    }
}
