import com.example.vision.Small;
import java.io.File;
import java.util.Arrays;
import org.adt.runtime.FloatTensor;
import org.other.sound.Other;

/** Models of two projects in one program, one on the other's output: `SharedRuntime MODEL`. */
public final class SharedRuntime {
    private SharedRuntime() {}

    public static void main(String[] arguments) {
        File model = new File(arguments[0]);
        try (Small small = Small.load(model);
                Other other = Other.load(model)) {
            Small.Inputs inputs = new Small.Inputs();
            inputs.x().set(new float[] {1, 2, 3, 4});
            Other.Inputs same = new Other.Inputs();
            FloatTensor shared = inputs.x();
            same.x().use(shared);
            try (Small.Outputs first = small.run(inputs);
                    Other.Outputs second = other.run(same)) {
                if (!Arrays.equals(first.y().toArray(), second.y().toArray())) {
                    throw new AssertionError(second.y());
                }
            }
        }
        System.out.println("done");
    }
}
